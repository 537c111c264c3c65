"""What Homing can carry: ``make bench`` measures it, ``make profile`` says where the time goes."""
