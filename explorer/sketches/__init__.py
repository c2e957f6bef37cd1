"""Named sketches, and readers for our YAML and TACCL's JSON."""
