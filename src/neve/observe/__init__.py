"""What Neve tells about itself: metrics and health."""
