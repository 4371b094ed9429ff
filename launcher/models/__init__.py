"""What is known of a program from its earlier runs: kept, learned on, and used for the next one."""
