// Adds delegate's MCP server to opencode, and lets no subagent end before what it was asked for is there.

import { spawn } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"

const PROGRAM = "delegate-task"
const SERVER = {"type": "local", "command": ["delegate-task", "mcp", "--answer-within", "3540"], "timeout": 3600000}
const HOOK_MILLISECONDS = 60000

export const Delegate = async ({ client, directory }) => ({
  config: async (config) => {
    config.mcp = { delegate: SERVER, ...config.mcp }
  },
  "tool.execute.after": async (input, output) => {
    const child = output.metadata?.sessionId
    if (input.tool !== "task" || !child) return
    for (;;) {
      const told = await judged(client, directory, input, child, output.output)
      if (told.decision !== "block") {
        if (told.systemMessage) output.output += `\n\n${told.systemMessage}`
        return
      }
      const body = { parts: [{ type: "text", text: told.reason }] }
      const reply = await client.session.prompt({ path: { id: child }, body })
      output.output = (reply.data?.parts ?? []).map((part) => part.text ?? "").join("")
    }
  },
})

// What the hook says of a subagent that wants to end.
async function judged(client, directory, input, child, report) {
  const folder = await mkdtemp(join(tmpdir(), "delegate-"))
  try {
    const messages = await client.session.messages({ path: { id: child } })
    const transcript = join(folder, "session.json")
    await writeFile(transcript, JSON.stringify({ info: { id: child }, messages: messages.data ?? [] }))
    return await hook({
      hook_event_name: "SubagentStop",
      session_id: input.sessionID,
      agent_id: child,
      agent_type: input.args?.subagent_type,
      cwd: directory,
      agent_transcript_path: transcript,
      last_assistant_message: report,
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function hook(event) {
  return new Promise((resolve) => {
    const child = spawn(PROGRAM, ["hook"], { stdio: ["pipe", "pipe", "ignore"], timeout: HOOK_MILLISECONDS })
    let text = ""
    child.on("error", () => resolve({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => (text += part))
    child.on("close", () => {
      try {
        resolve(JSON.parse(text))
      } catch {
        resolve({})
      }
    })
    child.stdin.end(JSON.stringify(event))
  })
}
