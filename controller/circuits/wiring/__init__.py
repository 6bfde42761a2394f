"""Direct-connect fabrics: which servers circuits connect for a job, and how far that is from the best. Pure."""
