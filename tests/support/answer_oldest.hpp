#pragma once

#include "troupe/actors/protocol/register_messages.hpp"

namespace troupe::internal::test {

/// A test lets an actor that records answer the oldest request that waits
/// there, or refuse it.
struct answer_oldest {
  error refusal; ///< `ec::none`: it is answered.
};

TROUPE_INSPECT(answer_oldest, refusal)

} // namespace troupe::internal::test

CAF_BEGIN_TYPE_ID_BLOCK(actor_tests, ::troupe::first_user_type_id)
CAF_ADD_TYPE_ID(actor_tests, (troupe::internal::test::answer_oldest))
CAF_END_TYPE_ID_BLOCK(actor_tests)
