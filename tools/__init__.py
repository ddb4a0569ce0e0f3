"""What measures, tortures and fuzzes Holdfast. Each folder has a README."""
