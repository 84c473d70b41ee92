#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <caf/result.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/rendezvous/rendezvous_table.hpp"

namespace troupe::internal {

/// The rendezvous store of one attempt, as its ranks ask it. What waits for
/// keys is answered once they exist.
class group_store {
public:
  /// Answers the requests that *self* handles.
  explicit group_store(worker_group_actor::pointer self) : self_(self) {}

  caf::result<void> set(store_set& x);
  caf::result<std::string> get(const store_get& x);
  caf::result<std::int64_t> add(const store_add& x);
  caf::result<bool> check(const store_check& x);
  caf::result<void> wait(const store_wait& x);
  caf::result<bool> erase(const store_erase& x);
  caf::result<std::int64_t> size(const store_size& x);
  caf::result<std::string> compare_set(store_compare_set& x);

  /// The ranks are to end: for *reason*, all that waits is refused, and from
  /// now on what may have to.
  void close(const error& reason);

private:
  /// A rank that waits for the value of a key.
  struct pending_get {
    std::string key;
    caf::typed_response_promise<std::string> promise;
  };

  void release(const rendezvous_table::waiter_list& waiters);

  worker_group_actor::pointer self_;
  rendezvous_table table_;
  std::map<rendezvous_table::waiter_id, pending_get> getters_;
  std::map<rendezvous_table::waiter_id, caf::typed_response_promise<void>>
    waiters_;
  rendezvous_table::waiter_id next_waiter_ = 0;
  error closed_for_; ///< Unset: it is open.
};

} // namespace troupe::internal
