"""What people read: reports, receipts, plots, and the sentences of the command line."""
