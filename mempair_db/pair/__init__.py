"""The Memory Pair: a learner and its certified unlearner over one state. Needs no database."""
