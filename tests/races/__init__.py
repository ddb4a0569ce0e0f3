"""Tests of what happens at the same time: forced interleavings, and a storm whose history is checked."""
