module foreign

go 1.19
