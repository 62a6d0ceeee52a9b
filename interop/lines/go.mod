module pawl/interop/lines

go 1.24
