"""The first minute: learn, predict, forget and prove, on a table of invented customers."""
