"""What ``check`` must find: one row of expectations per damaged variant of the recovery catalogues."""
