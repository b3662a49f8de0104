"""A small lesson package for the builder's tests. They work on a copy in a temporary folder."""
