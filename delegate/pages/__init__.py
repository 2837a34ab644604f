"""Pages for people: a recorded run or batch as one self-contained HTML page, and all of them served on loopback.

    records, journal ──▶ reading: plain values ──▶ page: templates, escaped ──▶ a file, or a reply of the server

`atif` and `preference` write the records of tasks in formats of other tools: trajectories and training data.
Nothing here runs or judges anything. All text of a child, a judge or a provider is data: `page` cleans and escapes it.
"""
