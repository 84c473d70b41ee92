// Stands where the package has its library for NCCL: the function of
// trainers/torch/groups/nccl/nccl_library.hpp, a header that is not installed.

#include <chrono>
#include <stdexcept>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

extern "C" c10d::Backend*
troupe_make_nccl_group(const c10::intrusive_ptr<c10d::Store>&, int, int,
                       c10::Device, std::chrono::milliseconds) {
  throw std::runtime_error{"the library of the package was asked"};
}
