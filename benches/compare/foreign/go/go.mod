module foreign

// From 1.23 on the runtime has its new timers, if this line asks for them. Older compilers ignore it.
go 1.23
