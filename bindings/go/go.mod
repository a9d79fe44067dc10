module protrain

go 1.19
