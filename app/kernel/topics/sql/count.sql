-- How many topics there are.
SELECT count(*) FROM holdfast.topics
