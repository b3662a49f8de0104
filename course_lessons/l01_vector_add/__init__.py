"""Lesson 01: vector addition."""
