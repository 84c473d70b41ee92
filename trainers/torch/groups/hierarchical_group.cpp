#include "troupe/trainers/torch/groups/hierarchical_group.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Of the host whose first rank is *first*.
std::string key_of_host(int first) {
  return concat("host/", first);
}

/// Where rank 0 publishes what it has read: the places of all leaders for
/// leaders, and for the other ranks only how many each host has.
constexpr const char* key_of_leaders = "leaders";
constexpr const char* key_of_layout = "layout";

void publish(c10d::Store& store, const std::string& key,
             const std::string& text) {
  store.set(key, std::vector<std::uint8_t>{text.begin(), text.end()});
}

std::string read(c10d::Store& store, const std::string& key) {
  auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

tl::unexpected<error> no_layout() {
  return failure(ec::protocol,
                 "the store holds something else than the hosts of the ring");
}

/// "3x8 1x4 ": three hosts with 8 ranks, then one with 4.
std::string layout_of(const std::vector<ring_leader>& leaders) {
  std::string result;
  for (std::size_t i = 0, end = 0; i < leaders.size(); i = end) {
    while (end < leaders.size()
           && leaders[end].host.ranks == leaders[i].host.ranks)
      ++end;
    result += concat(end - i, 'x', leaders[i].host.ranks, ' ');
  }
  return result;
}

/// The hosts of *ranks* ranks, without names.
expected<std::vector<ring_host>> decode_layout(const std::string& text,
                                               int ranks) {
  std::vector<ring_host> result;
  std::istringstream in{text};
  int first = 0;
  for (int hosts = 0, each = 0; first < ranks;) {
    char x = 0;
    if (!(in >> hosts >> x >> each) || x != 'x' || hosts < 1 || each < 1
        || hosts > (ranks - first) / each)
      return no_layout();
    for (; hosts > 0; --hosts, first += each)
      result.push_back({{}, first, each});
  }
  return result;
}

/// The texts of all leaders, each after its length.
std::string encode(const std::vector<ring_leader>& leaders) {
  std::string result;
  for (auto& leader : leaders) {
    auto text = encode(leader);
    result += concat(text.size(), '\n', text);
  }
  return result;
}

expected<std::vector<ring_leader>> decode_leaders(std::string_view text) {
  std::vector<ring_leader> result;
  while (!text.empty()) {
    std::size_t size = 0;
    auto [at, problem] =
      std::from_chars(text.data(), text.data() + text.size(), size);
    auto begin = static_cast<std::size_t>(at - text.data()) + 1;
    if (problem != std::errc{} || begin > text.size()
        || size > text.size() - begin)
      return no_layout();
    TROUPE_TRY(auto leader, decode_leader(text.substr(begin, size)));
    result.push_back(std::move(leader));
    text.remove_prefix(begin + size);
  }
  return result;
}

/// What the leaders of *ranks* ranks have published.
expected<std::vector<ring_leader>> collect_leaders(c10d::Store& store,
                                                   int ranks) {
  std::vector<ring_leader> result;
  for (int first = 0; first < ranks;) {
    TROUPE_TRY(auto leader, decode_leader(read(store, key_of_host(first))));
    if (leader.host.first_rank != first)
      return no_layout();
    first += leader.host.ranks;
    result.push_back(std::move(leader));
  }
  return result;
}

} // namespace

expected<host_meeting> host_meeting::begin(c10d::Store& store, args x,
                                           const join_ring_args& how) {
  host_meeting result{std::move(x)};
  auto& here = result.args_;
  if (!result.leads() || result.is_alone())
    return result;
  TROUPE_TRY(result.port_, ring_port::open(here.address));
  ring_leader leader;
  leader.host = {here.host.empty() ? here.address : here.host, here.rank,
                 here.local_ranks};
  leader.address = here.address;
  leader.port = result.port_.port();
  leader.token = result.port_.token();
  leader.encrypted = how.security->encrypts();
  publish(store, key_of_host(here.rank), encode(leader));
  return result;
}

expected<std::vector<ring_leader>>
host_meeting::read_leaders(c10d::Store& store) const {
  if (args_.rank != 0)
    return decode_leaders(read(store, key_of_leaders));
  TROUPE_TRY(auto leaders, collect_leaders(store, args_.ranks));
  publish(store, key_of_leaders, encode(leaders));
  publish(store, key_of_layout, layout_of(leaders));
  return leaders;
}

expected<host_places> host_meeting::join(c10d::Store& store,
                                         const join_ring_args& how) {
  host_places result;
  std::vector<ring_leader> leaders;
  if (is_alone()) {
    result.hosts.push_back({args_.host, 0, args_.ranks});
  } else if (leads()) {
    TROUPE_TRY(leaders, read_leaders(store));
    for (auto& leader : leaders)
      result.hosts.push_back(leader.host);
  } else {
    TROUPE_TRY(result.hosts,
               decode_layout(read(store, key_of_layout), args_.ranks));
  }
  auto first = args_.rank - args_.local_rank;
  auto here = std::ranges::find(result.hosts, first, &ring_host::first_rank);
  if (here == result.hosts.end() || here->ranks != args_.local_ranks)
    return failure(ec::protocol,
                   concat("the store does not agree with this host, which has ",
                          args_.local_ranks, " ranks from ", first, " on"));
  result.index = static_cast<std::size_t>(here - result.hosts.begin());
  if (!leads())
    return result;
  TROUPE_TRY(auto links, join_ring(port_, leaders, result.index, how));
  result.ring = std::make_unique<host_ring>(
    result.hosts, result.index, std::move(links.next),
    std::move(links.previous), describe_note);
  return result;
}

} // namespace troupe::internal
