package recurrence

import _ "time/tzdata" // so that every installation knows the same time zones
