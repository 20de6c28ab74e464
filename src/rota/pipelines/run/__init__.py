"""One run of a pipeline, stage by stage; everything durable goes through its run store."""
