#pragma once

// Stands in for the header of that name where CUDA is not installed. LibTorch's
// headers name these types; troupe_nccl never touches a value of one.
typedef struct cublasLtContext* cublasLtHandle_t;
