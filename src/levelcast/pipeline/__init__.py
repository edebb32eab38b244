"""What runs on Spark: today the channel plan of an interest table that no single machine should hold.

The only package that imports pyspark. Functions from DataFrame to DataFrame; `session` makes the session.
"""
