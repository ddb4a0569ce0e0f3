"""Tests of the core: each verb is one statement."""
