-- How many topics there are of each kind.   One row each: type, durability, topics.
SELECT type, durability, count(*) AS topics FROM holdfast.topics GROUP BY type, durability
