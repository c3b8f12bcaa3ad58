from .index import Changes as Changes
from .index import Index as Index
from .index import Status as Status
