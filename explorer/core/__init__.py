"""The nouns every other room uses: topology, collective, sketch, schedule, costs, bounds."""
