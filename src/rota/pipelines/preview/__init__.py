"""What can be said of a pipeline without running it: verdict, prompts, cost."""
