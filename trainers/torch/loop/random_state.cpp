#include "troupe/trainers/torch/loop/random_state.hpp"

#include <mutex>
#include <vector>

#include <ATen/Context.h>

namespace troupe {

namespace {

std::vector<at::Device> devices_of(at::Device device) {
  if (device.is_cpu())
    return {device};
  return {at::Device{at::kCPU}, device};
}

std::string name_of(at::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

} // namespace

tensor_map random_state(at::Device device) {
  tensor_map result;
  for (auto x : devices_of(device)) {
    auto generator = at::globalContext().defaultGenerator(x);
    std::lock_guard guard{generator.mutex()};
    result[name_of(x)] = generator.get_state();
  }
  return result;
}

void set_random_state(const tensor_map& saved, at::Device device) {
  for (auto x : devices_of(device)) {
    auto i = saved.find(name_of(x));
    if (i == saved.end())
      continue;
    auto generator = at::globalContext().defaultGenerator(x);
    std::lock_guard guard{generator.mutex()};
    generator.set_state(i->second.clone());
  }
}

} // namespace troupe
