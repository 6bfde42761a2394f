"""What a plan is compared with: routing schemes that are modelled, never installed."""
