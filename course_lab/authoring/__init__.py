"""What authors work with: lessons, their source, exercises, mutants, and the builder of the notebooks."""
