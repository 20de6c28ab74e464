"""Operations: up, doctor, migrate, metrics, workers, queues and why."""
