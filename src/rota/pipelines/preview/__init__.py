"""The preview of a pipeline without running it: verdict, prompts, cost."""
