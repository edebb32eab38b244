"""What a program of a floor or a subscriber imports: `Publisher`, `Subscriber`, replay of recorded trades."""
