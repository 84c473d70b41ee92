#include "troupe/trainers/rank_mailbox.hpp"

#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/mailbox_relay.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/actor_link.hpp"
#include "troupe/trainers/mail_queue.hpp"

namespace troupe {

using namespace internal;

namespace {

/// The link of *context*, which *call* needs.
actor_link& link_of(train_context& context, const char* call) {
  auto link = dynamic_cast<actor_link*>(&rank_access{context}.link_for(call));
  if (!link)
    leave_loop({ec::unsupported, concat("rank ", context.rank(), ": ", call,
                                        " needs a run with actors")});
  return *link;
}

/// Behavior of the POSTBOX actor, of *rank*.
postbox_actor::behavior_type postbox(postbox_actor::pointer self, int rank,
                                     std::shared_ptr<mail_queue> queue) {
  auto refuse = [self, rank, queue](const mail& x) {
    if (!x.wants_answer)
      queue->note_unread();
    auto relay = caf::actor_cast<caf::actor>(self->current_sender());
    open_answer{relay, x.id, x.wants_answer}.refuse(
      {ec::invalid_argument,
       concat("rank ", rank,
              " cannot read a message: its type is not registered there (call "
              "register_messages before init), or there is no memory for it")});
    send_anonymous(relay, mail_taken{1});
  };
  return {
    [queue, refuse](mail& x) {
      if (x.body.empty())
        refuse(x);
      else
        queue->push(std::move(x));
    },
    [queue](const mail_dropped& x) { queue->note_dropped(x.messages); },
  };
}

} // namespace

// -- answers

namespace internal {

open_answer& open_answer::operator=(open_answer&& x) noexcept {
  std::swap(process_, x.process_);
  std::swap(relay_, x.relay_);
  std::swap(id_, x.id_);
  std::swap(is_open_, x.is_open_);
  return *this;
}

open_answer::~open_answer() {
  if (process_.is_here())
    give({});
}

void open_answer::check_process() const {
  if (!process_.is_here())
    leave_loop({ec::invalid_argument,
                "a message of a rank's mailbox was answered in a process that "
                "the train loop forked"});
}

void open_answer::give(caf::message x) {
  check_process();
  if (!is_open_)
    return;
  auto relay = caf::actor_cast<caf::strong_actor_ptr>(relay_);
  auto& system = *relay->home_system;
  if (relay->nid != system.node())
    if (auto ok = check_length(system, x, "an answer"); !ok)
      return refuse(std::move(ok.error()));
  is_open_ = false;
  send_anonymous(relay_, mail_answer{id_, {}, std::move(x)});
}

void open_answer::refuse(error reason) {
  check_process();
  if (std::exchange(is_open_, false))
    send_anonymous(relay_, mail_answer{id_, std::move(reason), {}});
}

// -- the mailbox

class mailbox_core {
public:
  mailbox_core(train_context& context, const mailbox_options& options)
    : context_(context), link_(link_of(context, "rank_mailbox")),
      capacity_(options.capacity) {
    if (capacity_ == 0)
      leave_loop({ec::invalid_argument,
                  concat("rank ", context.rank(),
                         ": the capacity of a mailbox must be at least 1")});
    // Both would have the one place of `on_end`, and the rank one relay.
    if (link_.has_mailbox())
      leave_loop({ec::conflict,
                  concat("rank ", context.rank(),
                         " has a mailbox: end it before you make another")});
    queue_ = std::make_shared<mail_queue>(
      capacity_, [relay = relay_](std::uint64_t places) {
        send_anonymous(*relay, mail_taken{places});
      });
    open();
    link_.note_mailbox(true);
    link_.args().control->on_end(
      [queue = queue_, network = link_.network()](const error& /*reason*/) {
        queue->end();
        if (network)
          network->wake();
      },
      loop_control::listener::mailbox);
  }

  ~mailbox_core() {
    link_.args().control->on_end({}, loop_control::listener::mailbox);
    link_.note_mailbox(false);
    queue_->close();
    send_anonymous(*relay_, attempt_over{link_.args().attempt});
    caf::anon_send_exit(box_, caf::exit_reason::user_shutdown);
  }

  mail_queue& queue() noexcept { return *queue_; }
  const caf::actor& relay() const noexcept { return *relay_; }

  /// Throws if the loop is to end, or this is not its thread.
  void check(const char* call) {
    (void) rank_access{context_}.link_for(call);
    if (link_.args().control->ended())
      leave_loop(link_.args().control->reason());
  }

  void wait(caf::type_id_t type,
            std::optional<std::chrono::milliseconds> limit) {
    // A clock cannot tell the end of all times.
    if (limit && *limit > longest_limit)
      limit = std::nullopt;
    if (queue_->is_ready(type))
      return;
    auto shown = link_.activity();
    activity_scope here{shown->asks_driver};
    if (auto network = link_.network(); network && !limit)
      network->drive_until([&] { return queue_->is_ready(type); });
    else if (limit)
      queue_->wait(type, mail_queue::clock::now() + *limit);
    else
      queue_->wait(type, std::nullopt);
  }

private:
  void open() {
    auto rank = context_.rank();
    box_ = link_.network()
             ? spawn_on_network_thread(link_.system(), postbox, rank, queue_)
             : link_.system().spawn(postbox, rank, queue_);
    auto facts = rank_access{context_}.facts();
    auto answer = link_.open_mailbox(
      {facts.attempt, facts.rank, facts.world_size, capacity_}, box_);
    if (!answer) {
      caf::anon_send_exit(box_, caf::exit_reason::user_shutdown);
      leave_loop(std::move(answer.error()));
    }
    *relay_ = std::move(*answer);
  }

  train_context& context_;
  actor_link& link_;
  std::uint64_t capacity_;
  std::shared_ptr<caf::actor> relay_ = std::make_shared<caf::actor>();
  std::shared_ptr<mail_queue> queue_;
  postbox_actor box_;
};

} // namespace internal

rank_mailbox::rank_mailbox(train_context& context, mailbox_options options)
  : core_(new mailbox_core{context, options}) {}

rank_mailbox::~rank_mailbox() = default;

std::optional<rank_mailbox::taken> rank_mailbox::take(caf::type_id_t type) {
  core_->check("try_receive()");
  auto x = core_->queue().take(type);
  if (!x)
    return std::nullopt;
  return taken{std::move(x->body),
               open_answer{core_->relay(), x->id, x->wants_answer}};
}

std::optional<rank_mailbox::taken>
rank_mailbox::wait(caf::type_id_t type,
                   std::optional<std::chrono::milliseconds> limit) {
  core_->check("receive()");
  core_->wait(type, limit);
  return take(type);
}

void rank_mailbox::handle(caf::type_id_t type,
                          std::function<caf::message(caf::message&)> f) {
  core_->check("on()");
  core_->queue().handle(
    type, [f = std::move(f), relay = core_->relay()](mail& x) {
      open_answer answer{relay, x.id, x.wants_answer};
      try {
        answer.give(f(x.body));
      } catch (...) {
        answer.refuse(caught("the rank's handler of a message failed"));
      }
    });
}

std::size_t rank_mailbox::waiting() const {
  return core_->queue().size();
}

std::uint64_t rank_mailbox::dropped() const {
  return core_->queue().dropped();
}

const caf::actor& rank_mailbox::handle() const noexcept {
  return core_->relay();
}

caf::actor_system& actor_system_of(train_context& context) {
  return link_of(context, "actor_system_of()").system();
}

} // namespace troupe
