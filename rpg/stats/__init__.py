from rpg.stats.estimates import *
