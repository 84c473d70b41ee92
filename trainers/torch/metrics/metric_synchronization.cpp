#include "troupe/trainers/torch/metrics/metric_synchronization.hpp"

#include <algorithm>
#include <string_view>

#include <ATen/ATen.h>

#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Metric states serialized for an all-gather: 64-bit words (number of updates,
/// types, shapes), then the elements of every state.
struct states_message {
  at::Tensor bytes;       // uint8, a multiple of eight.
  std::int64_t words = 0; // Before the elements.
};

/// Elements begin at multiples of this, so that a view of any type is aligned.
constexpr std::int64_t alignment = 8;

std::int64_t padded(std::int64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

at::Tensor as_bytes(const at::Tensor& x) {
  auto bytes = x.contiguous().reshape({-1}).view(at::kByte);
  auto missing = padded(bytes.numel()) - bytes.numel();
  return missing == 0 ? bytes : at::constant_pad_nd(bytes, {0, missing});
}

/// Reads the words and elements of a message in order.
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

/// *xs* on *device*.
states_message pack_states(const std::vector<const metric_states*>& xs,
                           at::Device device) {
  std::vector<std::int64_t> words;
  std::vector<at::Tensor> parts(1); // The first is for the words.
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

/// The states in *x*, which have the names and reductions of *like*, on its
/// devices. The tensors are views of *x* where possible.
std::vector<metric_states>
unpack_states(const states_message& x,
              const std::vector<const metric_states*>& like) {
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

/// What a rank sends before its message, 64 bits each.
enum header_word : std::int64_t {
  signature_word,
  computed_word, // 1 if the rank has cached values.
  bytes_word,
  words_word,
  header_words,
};

constexpr std::int64_t header_bytes = header_words * 8;

/// The data plane of the train loop on this thread; without a group outside of
/// a train loop and for a single rank.
torch_data_plane current_plane() {
  train_context* current = nullptr;
  try {
    current = &context();
  } catch (const std::logic_error&) {
    return {};
  }
  return current->world_size() == 1 ? torch_data_plane{}
                                    : *data_plane(*current);
}

/// FNV-1a: unlike std::hash the same on every machine.
struct text_hash {
  void operator()(std::string_view text) {
    for (auto c : text)
      add(static_cast<unsigned char>(c));
    add(0xff); // Terminates the text: no UTF-8 contains this byte.
  }

  void add(unsigned char c) { value = (value ^ c) * 0x100000001b3; }

  std::uint64_t value = 0xcbf29ce484222325;
};

/// Swaps the states of all ranks into metrics, and their own back when
/// destroyed.
class synced_states {
public:
  synced_states(std::vector<metric_states*> mine,
                std::vector<metric_states> merged)
    : mine_(std::move(mine)), other_(std::move(merged)) {
    swap();
  }

  ~synced_states() { swap(); }

  synced_states(const synced_states&) = delete;
  synced_states& operator=(const synced_states&) = delete;

private:
  void swap() noexcept {
    for (std::size_t i = 0; i < mine_.size(); ++i)
      std::swap(*mine_[i], other_[i]);
  }

  std::vector<metric_states*> mine_;
  std::vector<metric_states> other_;
};

} // namespace

metric_synchronization::metric_synchronization(
  std::vector<metric*> members, const std::optional<torch_data_plane>& plane)
  : members_(std::move(members)), plane_(plane ? *plane : current_plane()) {
  for (auto x : members_)
    if (std::none_of(leaders_.begin(), leaders_.end(),
                     [x](auto y) { return y->states_ == x->states_; }))
      leaders_.push_back(x);
}

std::vector<at::Tensor> metric_synchronization::values() {
  at::NoGradGuard no_grad;
  if (plane_.group && plane_.group->getSize() > 1) {
    if (auto ranks = gather()) {
      std::vector<metric_states*> mine;
      for (auto x : leaders_)
        mine.push_back(x->states_.get());
      synced_states guard{std::move(mine), merged(std::move(*ranks))};
      compute_members();
    }
  } else if (!computed()) {
    compute_members();
  }
  std::vector<at::Tensor> result;
  for (auto x : members_)
    result.push_back(x->computed_);
  return result;
}

std::optional<std::vector<metric_synchronization::states_list>>
metric_synchronization::gather() const {
  std::vector<const metric_states*> mine;
  for (auto x : leaders_)
    mine.push_back(x->states_.get());
  auto message = pack_states(mine, plane_.device);
  auto size = message.bytes.numel();
  auto header = at::empty({header_words}, at::kLong);
  header[signature_word] = signature();
  header[computed_word] = computed() ? 1 : 0;
  header[bytes_word] = size;
  header[words_word] = message.words;

  auto fits = std::min(size, inline_bytes - header_bytes);
  auto first = at::zeros({inline_bytes}, message.bytes.options());
  first.narrow(0, 0, header_bytes).copy_(header.view(at::kByte));
  first.narrow(0, header_bytes, fits).copy_(message.bytes.narrow(0, 0, fits));
  auto rows = all_gather(first);
  auto headers =
    rows.narrow(1, 0, header_bytes).contiguous().to(at::kCPU).view(at::kLong);
  check_signatures(headers.select(1, signature_word));
  if (headers.select(1, computed_word).all().item<bool>())
    return std::nullopt;

  auto longest = headers.select(1, bytes_word).max().item<std::int64_t>();
  if (longest <= inline_bytes - header_bytes)
    rows = rows.narrow(1, header_bytes, longest);
  else
    rows = all_gather(at::constant_pad_nd(message.bytes, {0, longest - size}));
  std::vector<states_list> result;
  for (std::int64_t rank = 0; rank < rows.size(0); ++rank) {
    auto words = headers[rank][words_word].item<std::int64_t>();
    result.push_back(unpack_states({rows[rank], words}, mine));
  }
  return result;
}

at::Tensor metric_synchronization::all_gather(at::Tensor mine) const {
  auto rows =
    at::empty({plane_.group->getSize(), mine.numel()}, mine.options());
  std::vector<std::vector<at::Tensor>> outputs{rows.unbind()};
  std::vector<at::Tensor> inputs{std::move(mine)};
  plane_.group->allgather(outputs, inputs)->wait();
  return rows;
}

void metric_synchronization::check_signatures(
  const at::Tensor& signatures) const {
  auto first = signatures[0].item<std::int64_t>();
  std::vector<int> others;
  for (int rank = 1; rank < signatures.size(0); ++rank)
    if (signatures[rank].item<std::int64_t>() != first)
      others.push_back(rank);
  if (others.empty())
    return;
  auto mine = joined(members_, ", ", [](auto* x) { return x->name(); });
  throw train_error{
    {ec::invalid_argument,
     c10::str(rank_list(others),
              ": other metrics or options than on rank 0; rank ",
              plane_.group->getRank(), " computes ", mine)}};
}

std::int64_t metric_synchronization::signature() const {
  text_hash hash;
  for (auto x : members_) {
    hash(x->name());
    hash(x->state_key());
    for (auto& item : x->states_->items) {
      hash(item.name);
      hash.add(static_cast<unsigned char>(item.reduction));
    }
  }
  return static_cast<std::int64_t>(hash.value);
}

metric_synchronization::states_list
metric_synchronization::merged(std::vector<states_list> ranks) const {
  auto result = std::move(ranks.front());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    for (std::size_t i = 0; i < leaders_.size(); ++i)
      result[i].add(ranks[rank][i], [leader = leaders_[i]](auto& x, auto& y) {
        leader->combine(x, y);
      });
  // Values computed from these are cached for this rank's current revision.
  for (std::size_t i = 0; i < leaders_.size(); ++i)
    result[i].revision = leaders_[i]->states_->revision;
  return result;
}

bool metric_synchronization::computed() const {
  return std::all_of(members_.begin(), members_.end(), [](auto x) {
    return x->computed_.defined()
           && x->computed_revision_ == x->states_->revision;
  });
}

void metric_synchronization::compute_members() const {
  for (auto x : members_) {
    if (x->updates() == 0 && !x->warned_) {
      warn_metric(x->name(), "computed before any update");
      x->warned_ = true;
    }
    x->computed_ = at::Tensor{};
    x->computed_ = x->own_result();
    x->computed_revision_ = x->states_->revision;
  }
}

} // namespace troupe::internal
