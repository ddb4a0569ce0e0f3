"""Tests of what lives in the process."""
