#include "troupe/trainers/torch/groups/segment_collectives.hpp"

#include "troupe/trainers/torch/groups/reduction.hpp"
#include "troupe/trainers/torch/groups/segment_chunks.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t inline_bytes = shared_segment::inline_bytes;
constexpr std::size_t chunk_bytes = shared_segment::chunk_bytes;

} // namespace

void segment_collectives::barrier(const call& x) {
  exchange_.open(x.fingerprint, x.timeout);
}

void segment_collectives::all_reduce(const call& x, std::byte* data,
                                     std::size_t count, const reduction& how) {
  auto me = exchange_.rank();
  auto ranks = exchange_.ranks();
  auto width = size_of(how.type);
  auto bytes = count * width;
  auto root = x.fingerprint.root;
  const bool takes = root < 0 || root == me;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(ranks));
  if (bytes <= inline_bytes) {
    exchange_.open(x.fingerprint, x.timeout, data, bytes);
    for (int r = 0; r < ranks; ++r)
      sources[static_cast<std::size_t>(r)] = exchange_.payload(r);
    if (takes)
      how.apply(data, nullptr, sources.data(), ranks, count);
    return;
  }
  exchange_.open(x.fingerprint, x.timeout);
  const segment_chunks parts{bytes, chunk_bytes};
  for (std::size_t step = 0; step < parts.count() + 2; ++step) {
    exchange_.meet();
    if (step < parts.count())
      exchange_.show_slices(parts, step, data);
    if (step >= 1 && step - 1 < parts.count()) {
      // The own slice comes from the tensor, so its place in the own area is
      // free for the result.
      auto part = parts[step - 1];
      auto cut = segment_slice(parts, part, me, ranks);
      auto* own = data + part.begin + cut.begin;
      auto* shown = exchange_.chunk(me, step - 1) + cut.begin;
      for (int r = 0; r < ranks; ++r)
        sources[static_cast<std::size_t>(r)] =
          r == me ? own : exchange_.chunk(r, step - 1) + cut.begin;
      if (takes)
        how.apply(own, shown, sources.data(), ranks, cut.size / width);
      else
        how.apply(shown, nullptr, sources.data(), ranks, cut.size / width);
    }
    if (step >= 2 && takes) {
      auto part = parts[step - 2];
      for (int r = 0; r < ranks; ++r)
        if (r != me) {
          auto cut = segment_slice(parts, part, r, ranks);
          copy_bytes(data + part.begin + cut.begin,
                     exchange_.chunk(r, step - 2) + cut.begin, cut.size);
        }
    }
    exchange_.advance();
  }
}

void segment_collectives::broadcast(const call& x, std::byte* data,
                                    std::size_t bytes) {
  auto root = x.fingerprint.root;
  const bool gives = root == exchange_.rank();
  if (bytes <= inline_bytes) {
    exchange_.open(x.fingerprint, x.timeout, data, gives ? bytes : 0);
    if (!gives)
      copy_bytes(data, exchange_.payload(root), bytes);
    return;
  }
  exchange_.open(x.fingerprint, x.timeout);
  exchange_.spread(root, data, bytes);
}

void segment_collectives::all_gather(const call& x, const std::byte* in,
                                     std::size_t bytes,
                                     const std::vector<std::byte*>& out) {
  auto me = exchange_.rank();
  auto take = [&](int r, segment_piece part, const std::byte* from) {
    if (!out.empty() && r != me)
      copy_bytes(out[static_cast<std::size_t>(r)] + part.begin, from,
                 part.size);
  };
  if (bytes <= inline_bytes) {
    exchange_.open(x.fingerprint, x.timeout, in, bytes);
    for (int r = 0; r < exchange_.ranks(); ++r)
      take(r, {0, bytes}, exchange_.payload(r));
  } else {
    exchange_.open(x.fingerprint, x.timeout);
    exchange_.gather(in, bytes, take);
  }
  if (!out.empty())
    copy_bytes(out[static_cast<std::size_t>(me)], in, bytes);
}

void segment_collectives::scatter(const call& x,
                                  const std::vector<const std::byte*>& in,
                                  std::byte* out, std::size_t bytes) {
  exchange_.open(x.fingerprint, x.timeout);
  exchange_.deal(x.fingerprint.root, in, out, bytes);
}

void segment_collectives::reduce_scatter(
  const call& x, const std::vector<const std::byte*>& in, std::byte* out,
  std::size_t count, const reduction& how) {
  auto me = static_cast<std::size_t>(exchange_.rank());
  auto ranks = static_cast<std::size_t>(exchange_.ranks());
  auto width = size_of(how.type);
  exchange_.open(x.fingerprint, x.timeout);
  auto share = chunk_bytes / ranks / segment_line * segment_line;
  const segment_chunks parts{count * width, share};
  std::vector<const std::byte*> sources(ranks);
  for (std::size_t step = 0; step < parts.count() + 1; ++step) {
    exchange_.meet();
    for (std::size_t r = 0; step < parts.count() && r < ranks; ++r)
      if (r != me)
        streaming_copy(exchange_.chunk(exchange_.rank(), step) + r * share,
                       in[r] + parts[step].begin, parts[step].size);
    if (step >= 1) {
      auto part = parts[step - 1];
      for (std::size_t r = 0; r < ranks; ++r)
        sources[r] =
          r == me ? in[me] + part.begin
                  : exchange_.chunk(static_cast<int>(r), step - 1) + me * share;
      how.apply(out + part.begin, nullptr, sources.data(), exchange_.ranks(),
                part.size / width);
    }
    exchange_.advance();
  }
}

} // namespace troupe::internal
