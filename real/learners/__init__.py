"""Learners: torch in this process (``torch_learner``) or in several (``fsdp``); ``backend`` makes the right one."""
