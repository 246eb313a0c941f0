"""Whether a model is what its table's rows make of it: computed anew and compared, nothing taken on trust."""
