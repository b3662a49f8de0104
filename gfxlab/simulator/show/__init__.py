"""What a run looks like: the run and its card, the stepper, the sentences about instructions."""
