"""The service under kills: clients that write down what they were told, and a checker of what they wrote."""
