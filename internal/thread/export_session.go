package thread

import (
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// knownTo is what a provider knows of a conversation.
type knownTo struct {
	id       string
	messages int64 // number of message lines; 0 for all up to the last answer
}

// session returns the provider's conversation that the agent's next run continues: that of the agent's newest answer
// which belongs to one. Notices of failed runs, and answers of models without sessions, belong to none.
func (e *exporter) session(info *store.Thread) (knownTo, error) {
	later := false // there are answers after the one looked at
	agents := map[string]string{}
	for offset := 0; ; offset += exportPage {
		page, err := e.st.svc.store.Messages(e.ctx, info.ID, store.MessageQuery{Order: "desc", Offset: offset, Limit: exportPage, IncludeSilent: true})
		if err != nil {
			return knownTo{}, err
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if m.Seq > e.last || m.Role != store.RoleAssistant {
				continue
			}
			if id := sessionOf(m); id != "" {
				agent, err := e.agentOf(m, agents)
				if err != nil {
					return knownTo{}, err
				}
				if agent == info.Agent {
					return e.known(id, m, later)
				}
			}
			later = later || len(m.ToolCalls) == 0 && !notice(string(m.Role), contentOf(m))
		}
		if !page.HasMore {
			return knownTo{}, nil
		}
	}
}

// agentOf returns the agent that wrote an answer, or that had the imported session.
func (e *exporter) agentOf(m *store.Message, agents map[string]string) (string, error) {
	if s, _ := m.Metadata[MetadataSession].(map[string]any); s[sessionImported] == true {
		agent, _ := s[sessionAgent].(string)
		return agent, nil
	}
	if agent, known := agents[m.RunID]; known || m.RunID == "" {
		return agent, nil
	}
	run, err := e.st.svc.store.Run(e.ctx, e.st.id, m.RunID)
	if errors.Is(err, store.ErrNotFound) { // as in a fork, which inherits messages but no runs
		agents[m.RunID] = ""
		return "", nil
	}
	if err != nil {
		return "", err
	}
	agents[m.RunID] = run.Agent
	return run.Agent, nil
}

// known returns how much of the conversation a session has that ends with the message last.
func (e *exporter) known(id string, last *store.Message, later bool) (knownTo, error) {
	known := knownTo{id: id}
	if !later {
		return known, nil
	}
	messages := e.messagesAfter(0)
	defer messages.release()
	for {
		m, err := messages.peek()
		if err != nil {
			return known, err
		}
		if m == nil || m.Seq > last.Seq {
			return known, nil
		}
		if m.Role != store.RoleTool && len(m.ToolCalls) == 0 {
			known.messages++
		}
		messages.next()
	}
}

func contentOf(m *store.Message) string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}
