"""Speed, as ratios against something public in the same run."""
