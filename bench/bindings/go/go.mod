module calls

go 1.19

require protrain v0.1.0

replace protrain => ../../../bindings/go
