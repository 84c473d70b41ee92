#include "troupe/trainers/torch/metrics/states_message.hpp"

#include <ATen/ATen.h>

namespace troupe {

namespace {

/// Elements begin at multiples of this, so that views of all types fit.
constexpr std::int64_t alignment = 8;

std::int64_t padded(std::int64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

at::Tensor as_bytes(const at::Tensor& x) {
  auto bytes = x.contiguous().reshape({-1}).view(at::kByte);
  auto missing = padded(bytes.numel()) - bytes.numel();
  return missing == 0 ? bytes : at::constant_pad_nd(bytes, {0, missing});
}

/// Reads what `pack` wrote, from front to back.
struct message_reader {
  explicit message_reader(const states_message& x)
    : bytes(x.bytes), offset(x.words * alignment),
      words(bytes.narrow(0, 0, offset).to(at::kCPU).contiguous()) {}

  std::int64_t word() {
    return static_cast<const std::int64_t*>(words.const_data_ptr())[next++];
  }

  at::Tensor tensor(at::Device device) {
    auto type = static_cast<at::ScalarType>(word());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(word()));
    std::int64_t length = static_cast<std::int64_t>(elementSize(type));
    for (auto& x : sizes)
      length *= x = word();
    auto elements = bytes.narrow(0, offset, length).view(type);
    offset += padded(length);
    return elements.view(sizes).to(device);
  }

  at::Tensor bytes;
  std::int64_t offset;
  at::Tensor words;
  std::size_t next = 0;
};

} // namespace

states_message pack(const std::vector<const metric_states*>& xs,
                    at::Device device) {
  std::vector<std::int64_t> words;
  std::vector<at::Tensor> parts(1); // The words, once they are known.
  for (auto states : xs) {
    words.push_back(states->updates);
    for (auto& item : states->items) {
      auto x = item.whole();
      words.push_back(static_cast<std::int64_t>(x.scalar_type()));
      words.push_back(x.dim());
      words.insert(words.end(), x.sizes().begin(), x.sizes().end());
      parts.push_back(as_bytes(x).to(device));
    }
  }
  parts.front() = as_bytes(at::tensor(words, at::kLong)).to(device);
  return {at::cat(parts), static_cast<std::int64_t>(words.size())};
}

std::vector<metric_states>
unpack(const states_message& x, const std::vector<const metric_states*>& like) {
  message_reader reader{x};
  std::vector<metric_states> result;
  for (auto states : like) {
    auto& y = result.emplace_back(*states);
    y.updates = reader.word();
    for (auto& item : y.items)
      item.assign(reader.tensor(states->device()));
  }
  return result;
}

} // namespace troupe
