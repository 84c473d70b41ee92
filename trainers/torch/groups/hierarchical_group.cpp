#include "troupe/trainers/torch/groups/hierarchical_group.hpp"

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Of the host whose first rank is *first*.
std::string key_of_host(int first) {
  return concat("host/", first);
}

} // namespace

expected<host_meeting> host_meeting::begin(c10d::Store& store, args x,
                                           const join_ring_args& how) {
  host_meeting result{std::move(x)};
  auto& here = result.args_;
  if (!result.leads() || result.is_alone())
    return result;
  TROUPE_TRY(result.port_, ring_port::open(here.address));
  ring_seat seat;
  seat.host = {here.host.empty() ? here.address : here.host, here.rank,
               here.local_ranks};
  seat.address = here.address;
  seat.port = result.port_.port();
  seat.token = result.port_.token();
  seat.encrypted = how.security->encrypts();
  auto text = encode(seat);
  store.set(key_of_host(here.rank),
            std::vector<std::uint8_t>{text.begin(), text.end()});
  return result;
}

expected<host_places> host_meeting::join(c10d::Store& store,
                                         const join_ring_args& how) {
  host_places result;
  std::vector<ring_seat> seats;
  auto first_here = args_.rank - args_.local_rank;
  for (int first = 0; first < args_.ranks && !is_alone();) {
    auto text = store.get(key_of_host(first));
    TROUPE_TRY(auto seat, decode_seat({reinterpret_cast<char*>(text.data()),
                                       text.size()}));
    if (seat.host.first_rank != first
        || (first == first_here && seat.host.ranks != args_.local_ranks))
      return failure(ec::protocol,
                     concat("the store does not agree with this host about ",
                            to_string(seat.host)));
    if (first == first_here)
      result.index = seats.size();
    first += seat.host.ranks;
    result.hosts.push_back(seat.host);
    seats.push_back(std::move(seat));
  }
  if (is_alone())
    result.hosts.push_back({args_.host, 0, args_.ranks});
  if (!leads())
    return result;
  TROUPE_TRY(auto links, join_ring(port_, seats, result.index, how));
  result.ring = std::make_unique<host_ring>(
    result.hosts, result.index, std::move(links.next),
    std::move(links.previous), describe_note);
  return result;
}

} // namespace troupe::internal
