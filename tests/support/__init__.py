"""What the tests share: stores of real brokers, bytes laid by hand, disks that fail, damage, and readers of output."""
